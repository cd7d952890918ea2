"""By which index every op is divided: costs of choices, and their exact minimum by elimination.

split_graph   a step as operators in index notation -> options   which variables it has, and their choices
parts         what each device needs and makes      -> pricing   what choices cost: elements, bytes, or seconds
mesh          seconds of a cluster's links, per axis
cuts          the search: axis after axis, refined, or joint; within a limit on memory
neighbours    cuts that divide one kind of op otherwise
pairwise_costs, bucket_elimination, node_elimination, layer_costs, memory_limit: the exact minimum of any such costs
"""
