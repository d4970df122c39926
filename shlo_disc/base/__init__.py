"""What every room uses: errors, environment variables, locks, values made later."""
