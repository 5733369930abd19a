"""`python -m attncli` and the `attncli` command."""

from attncli.cli.main import main

if __name__ == "__main__":
    main()
