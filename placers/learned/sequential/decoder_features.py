"""What the sequential decoder sees of a unit on a device before the unit is placed: the features, by name."""

from enum import IntEnum, auto


class Feature(IntEnum):
    """The column of each feature. Times are in units of the layout's `scale`, through `signed_log`.

    Policies are saved with these names. New features come last: a policy that was trained without them has weights of
    zero for them. A feature that is removed, or that means something else from now on, needs a new training.
    """

    # seconds of all work on the device, this unit included
    LOAD = 0
    LOAD_ABOVE_MOST = auto()  # minus the load of the busiest device, without this unit
    LOAD_OF_FAIR_SHARE = auto()  # divided by what each device would have if all had equally much, minus 1
    LOAD_ABOVE_LEAST = auto()  # without this unit, minus the load of the least busy device
    # seconds later than on the device where it would be earliest
    READY = auto()  # all inputs are there
    START = auto()
    FINISH = auto()
    # seconds
    IDLE = auto()  # the device waits for the inputs
    QUEUE = auto()  # the inputs wait for the device
    DELAY = auto()  # the finish and the path behind it are later than the latest so far
    SENDING = auto()  # transfers of inputs
    CUT = auto()  # transfers of everything between the unit and units on other devices, both ways
    # shares of the unit's bytes
    INPUTS_MADE = auto()  # inputs made here, of all that are made already
    INPUTS_THERE = auto()  # inputs that are here, made or sent, of all that are made already
    LINKS_PLACED = auto()  # links to units here, of the links to units that are placed
    LINKS_ALL = auto()  # links to units here, of all links
    HELD_THERE = auto()  # tensors it must hold that the device holds already
    # shares of the device's memory
    ROOM = auto()  # left with the unit
    FILL = auto()  # held without it
    # seconds of the channel out of the device
    BACKLOG = auto()  # behind the device's clock
    TRAFFIC = auto()  # of all transfers so far
    # 0 or 1
    EMPTY = auto()  # no unit is here
    CRITICAL = auto()  # the last of the unit's inputs is made here
    LATEST = auto()  # the unit before this one was placed here
    EARLIEST_FINISH = auto()
    LIGHTEST = auto()  # the least load with the unit
    # the same for all devices
    USED = auto()  # share of devices with a unit
    PROGRESS = auto()  # share of the work that is placed
    TIGHTNESS = auto()  # bytes still to be held, by share of work, over bytes of room; at most 3
    URGENCY = auto()  # seconds of the longest path from the unit to the end
    # in a pass after the first, else 0; units "ahead" are not placed yet, and were here in the pass before
    BEFORE = auto()  # this unit was here: 0 or 1
    LINKED_AHEAD = auto()  # links to units ahead, of all links: share of bytes
    CUT_AHEAD = auto()  # transfers to units ahead on other devices: seconds
    CUT_IN_ALL = auto()  # transfers to units placed or ahead on other devices, above the device with fewest: seconds
    LOAD_AHEAD = auto()  # work that is here or ahead, of a fair share
    LOAD_AHEAD_ABOVE_MOST = auto()
    ROOM_AHEAD = auto()  # share of memory left by all that
    AGAIN = auto()  # 1: there was a pass before
    # known before anything is placed: logarithms of ratios, but for SHARE and IS_CPU
    SECONDS = auto()  # of the unit here over its mean
    SPEED = auto()  # of the device over the mean
    MEMORY = auto()  # of the device over the mean
    MEMORY_NEED = auto()  # of the device over what all units hold, a quarter of the logarithm
    OUTGOING = auto()  # bandwidth to other devices over the mean
    SHARE = auto()  # one over the number of devices
    IS_CPU = auto()
    # the unit's component: all units that edges join with it, whichever way
    COMPONENT_HERE = auto()  # work of it that is here, of its work that is placed
    COMPONENT_PRESENT = auto()  # a unit of it is here: 0 or 1
    COMPONENT_LEFT = auto()  # share of its work that is not placed yet
    COMPONENT_SHARE = auto()  # share of all work that it is
    COMPONENT_OF_FAIR_SHARE = auto()  # its work, divided by what each device would have if all had equally much, less 1
    # balance; an even share is what each device would be busy with if all ended at the same time
    LACK = auto()  # of the device to its even share, without this unit: seconds, below 0 where it has more
    LACK_OF_ALL = auto()  # share of the work that is lacked anywhere
    BALANCE = auto()  # work that is not placed yet, of what is lacked: 1 as long as no device has more than its share
    # seconds of channels, each with all that it carries, whoever sends it
    OUT_BUSIEST = auto()  # of all transfers so far, of the busiest channel out of the device
    OUT_BACKLOG = auto()  # behind the device's clock, of the channel out of it that is free last
    IN_BUSIEST = auto()  # of all transfers so far, of the busiest channel into the device
    REMAINING = auto()  # of transfers to and from units that are not placed yet, over the fastest link here
    # known before anything is placed
    ALONE = auto()  # seconds of everything on this device, over the scale: logarithm
    ALONE_FILL = auto()  # share of the device's memory that everything would take; at most 2
    LONGEST_PATH = auto()  # devices run what is ready by that rule: 0 or 1
    OPS_PER_UNIT = auto()  # a quarter of the logarithm: 0 if units are ops
    # seconds of the threads that issue ops, if that counts, else 0
    HOST_AHEAD = auto()  # the unit could start, by its inputs and the device, so much later than it is issued
    HOST_COPIES = auto()  # to issue the transfers of inputs


FEATURES = tuple(feature.name.lower() for feature in Feature)
FIRST_STATIC = int(Feature.SECONDS)
AFTER_STATIC = int(Feature.COMPONENT_HERE)
