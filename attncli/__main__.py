"""`python -m attncli` and the `attncli` command."""

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of the imports; main() restores it

try:
    from attncli.cli.main import main
except MemoryError:
    raise SystemExit("attncli: this needs more memory than there is") from None

if __name__ == "__main__":
    main()
