"""What products and convolutions share on all machines: work in front of them and behind them."""
