"""How far apart two right results may be: number types, rounding, comparison."""
