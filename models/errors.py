"""The one exception for input that a user can mend."""


class UserError(ValueError):
    """Bad input. The message is one line that names the value, the limit and the fix; commands print it and exit with code 2."""
