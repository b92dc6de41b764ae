"""What the server counts, and how it is told to Prometheus: names, histograms, one scrape.

Reads plain data of the workers and of finished requests. Knows no HTTP and no model.
"""
