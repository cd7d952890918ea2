"""Index notation: which elements of its inputs an operator reads, and so all ways of dividing it.

An operator is described by index variables, as in Tofu's TDL (Wang et al., EuroSys 2019, section 4): a convolution is

    y[n, co, h, w] = sum over ci, kh, kw of x[n, ci, h + kh - 1, w + kw - 1] * weight[co, ci, kh, kw]

Every index is an affine expression of variables, and every variable runs over a closed range of integers, so the part
of a tensor that belongs to a part of the iteration space is a *box*, one closed range per dimension. Dividing one
variable divides the operator. With h, of 8, in two, and kh from 0 to 2:

              x                      y
    row -1   : : :  <- fill                      what a part needs of x: rows 2 * part - 1 .. 2 * part + 4 where it
    row  0  |     |  part 0      |     |         is within x; the two parts overlap in rows 3 and 4: a halo of KH - 1
         1  |     |   0          |  0  |
         2  |     |   0          |     |
         3  |=====|   0  1       |_____|         of the weight all of it, since h is not in its index
         4  |=====|   0  1       |     |
         5  |     |      1       |     |         what a part makes of y: rows 0..3 and 4..7, a slice
         6  |     |      1       |  1  |
         7  |     |      1       |     |         had ci been divided, each part would make a partial sum of all of y
    row  8   : : :  <- fill

What there is, each file on top of those before it:

    ranges      boxes
    affine      expressions of variables
    operator    what an operator reads and writes
    strategies  what a part of a divided operator needs and makes
    gradients   the operators of the backward pass, over the same variables
    described   all ops of a graph, by the operators that they are
    signatures  which ATen operation an op is, on which shapes; `graphs/operators/` says which operator that is
    views       what an op sees of a tensor that it reads through a view
    shard       a part of an op, with its slices, in PyTorch

What each op of a training step reads of which other op is in `graphs/descriptions/descriptions.py`.
"""
