"""Tests of attncli.commands.diff."""
