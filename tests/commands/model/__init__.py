"""Real models: small random ones made from the configurations of their families."""
