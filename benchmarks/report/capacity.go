package main

func capacityPage(m measured) string { return machine(m) }
