"""AWS Trainium and Inferentia through the files of their kernel driver and the program ``neuron-monitor``."""
