"""The known bugs: catalogue.md, read and computed."""
