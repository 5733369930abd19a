"""`python -m attncli` and the `attncli` command."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of the imports; main() restores it

from attncli.cli.main import main

if __name__ == "__main__":
    main()
