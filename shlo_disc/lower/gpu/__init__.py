"""What the targets with a GPU share: host memory."""
