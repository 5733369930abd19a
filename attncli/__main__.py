"""`python -m attncli` and the `attncli` command."""

# Without the enums that `signal` makes of these, for until they are used, Ctrl-C is a traceback.
import _signal as signal  # type: ignore[import-not-found]
import gc
import sys

gc.set_threshold(200_000)  # objects between two runs: in a process this short they only cost time
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of the imports; main() restores it

try:
    from attncli.cli.main import main
except MemoryError:
    print("attncli: this needs more memory than there is", file=sys.stderr)
    sys.exit(2)

if __name__ == "__main__":
    main()
