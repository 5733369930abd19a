"""The command line: loads, computes, presents. The only code that prints and exits."""
