"""`python -m evalcell`, for where the `evalcell` script is not on the path."""

import sys

if not sys.flags.safe_path:
    # The current directory, which `-m` puts first. It may hold an evaluator called `json.py`, and importing it would
    # be running it, on the host.
    del sys.path[0]

from evalcell.cli.entry import main

main()
