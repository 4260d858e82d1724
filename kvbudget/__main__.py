"""`python -m kvbudget`."""

from kvbudget.cli.app import main

if __name__ == "__main__":
    main()
