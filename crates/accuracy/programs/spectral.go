// The spectral norm of the matrix 1 / ((i + j)(i + j + 1) / 2 + i + 1), again and again.
package main

import (
	"os"
	"runtime"
)

func at(i, j int) float64 { return 1 / float64((i+j)*(i+j+1)/2+i+1) }

func times(x, y []float64, turned bool) {
	for i := range y {
		sum := 0.0
		for j := range x {
			if turned {
				sum += at(j, i) * x[j]
			} else {
				sum += at(i, j) * x[j]
			}
		}
		y[i] = sum
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	n := 200
	u, v, t := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range u {
		u[i] = 1
	}
	for u[0] > -1 {
		for i := range u {
			u[i] = 1
		}
		for round := 0; round < 10; round++ {
			times(u, t, false)
			times(t, v, true)
			times(v, t, false)
			times(t, u, true)
		}
	}
	os.Exit(1)
}
