"""What the sequential decoder sees of a unit on a device before the unit is placed: the features, by name."""

from __future__ import annotations

from enum import IntEnum, auto


class Feature(IntEnum):
    """The column of each feature. Times are in units of the layout's `scale`, through `signed_log`.

    Policies are saved with these names in this order: another order, or another feature, needs a new training.
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
    # known before anything is placed: logarithms of ratios, but for the last two
    SECONDS = auto()  # of the unit here over its mean
    SPEED = auto()  # of the device over the mean
    MEMORY = auto()  # of the device over the mean
    MEMORY_NEED = auto()  # of the device over what all units hold, a quarter of the logarithm
    OUTGOING = auto()  # bandwidth to other devices over the mean
    SHARE = auto()  # one over the number of devices
    IS_CPU = auto()


FEATURES = tuple(feature.name.lower() for feature in Feature)
FIRST_STATIC = int(Feature.SECONDS)
