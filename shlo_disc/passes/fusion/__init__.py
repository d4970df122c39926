"""The fusion planner: a graph, a partition of its nodes, and rules that make clusters larger."""
