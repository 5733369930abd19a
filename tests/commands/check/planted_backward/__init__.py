"""Wrong gradients, and the right ones that they are made of: written without attncli."""
