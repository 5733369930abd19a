"""Tests of attncli.compare."""
