"""diff: two traces compared, stage by stage."""
