"""What NVIDIA's management library says about the cards of this machine."""
