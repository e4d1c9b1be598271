"""Interpreters of the graph: transforms from graph to graph whose rules call ops."""
