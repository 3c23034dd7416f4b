module sudog.example/versus

go 1.22
