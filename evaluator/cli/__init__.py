"""The command line: the commands, their options, and the display of progress."""
