package report

import "math"

// axis maps values to places on a line of a drawing.
type axis struct {
	low, high float64 // values at its ends
	from, to  float64 // places of its ends
	log       bool
	ticks     []float64
}

// linear makes an axis from 0 to a round number that is not below most.
func linear(most, from, to float64, about int) axis {
	if !(most > 0) {
		most = 1
	}
	step := niceStep(most / float64(about))
	a := axis{high: math.Ceil(most/step-1e-9) * step, from: from, to: to}
	for i := 0; float64(i)*step <= a.high*(1+1e-9); i++ {
		a.ticks = append(a.ticks, float64(i)*step)
	}
	return a
}

// exact makes an axis that ends where the values do.
func exact(most, from, to float64, about int) axis {
	a := linear(most, from, to, about)
	if most > 0 {
		a.high = most
		for len(a.ticks) > 0 && a.ticks[len(a.ticks)-1] > most*(1+1e-9) {
			a.ticks = a.ticks[:len(a.ticks)-1]
		}
	}
	return a
}

// niceStep is the least of 1, 2 and 5 times a power of ten that is not below a
// number.
func niceStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= least*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// logarithmic makes an axis of whole powers of ten around values above 0.
func logarithmic(least, most, from, to float64) axis {
	a := axis{low: math.Pow(10, math.Floor(math.Log10(least)+1e-9)), high: math.Pow(10, math.Ceil(math.Log10(most)-1e-9)), from: from, to: to, log: true}
	if a.high <= a.low {
		a.high = 10 * a.low
	}
	for t := a.low; t <= a.high*(1+1e-9); t *= 10 {
		a.ticks = append(a.ticks, t)
	}
	return a
}

// at returns the place of a value, within the axis.
func (a axis) at(v float64) float64 {
	part := (v - a.low) / (a.high - a.low)
	if a.log {
		part = math.Log(max(v, a.low)/a.low) / math.Log(a.high/a.low)
	}
	return a.from + (a.to-a.from)*min(1, max(0, part))
}
