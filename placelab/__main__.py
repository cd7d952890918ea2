"""`python -m placelab`: the command line."""

from placelab import main

main()
