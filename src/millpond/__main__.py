"""`python -m millpond`: the command line, wherever the script is not on PATH."""

from millpond.cli import main

if __name__ == "__main__":
    main()
