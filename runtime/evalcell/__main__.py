"""`python -m evalcell`, for where the `evalcell` script is not on the path."""

from evalcell.cli.entry import main

main()
