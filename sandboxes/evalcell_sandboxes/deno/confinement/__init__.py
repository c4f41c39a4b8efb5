"""What a process does to itself before it becomes the one that holds hostile code.

It runs before every start of Deno, so it is in a hurry: nothing here imports more than a few small modules of the
standard library, nor anything else of evalcell.
"""
