"""Programs: the language, the variants that ship, printing and reading back, errors."""
