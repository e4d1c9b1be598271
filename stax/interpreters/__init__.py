"""Interpreters of the graph: each transform is a function from graph to graph whose rules call ops."""
