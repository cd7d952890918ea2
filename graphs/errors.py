"""The two ways in which a user's input can be refused, each with its exit code."""


class InputError(ValueError):
    """Something given by the user is wrong; the message names it, and what is expected instead."""

    exit_code = 2


class UserCodeError(InputError):
    """Code in a user's own file raised an error; the message gives its line, type and message."""


class DoesNotFitError(RuntimeError):
    """No plan fits the devices' memory; the message says what is needed and what there is."""

    exit_code = 3
