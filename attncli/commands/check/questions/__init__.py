"""What is asked of the numbers themselves, where no known bug explains them."""
