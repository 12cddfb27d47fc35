# Fits a damped oscillation to points of its own, again and again.
set fit quiet
set fit logfile 'scratch'
set print 'scratch'
set samples 2000
set table $points
plot [0:10] 3 * exp(-0.3 * x) * cos(4 * x) + 0.1 * sin(90 * x)
unset table
do for [i = 1:100000] {
  a = 2.5; b = 0.2; c = 3.9
  f(x) = a * exp(-b * x) * cos(c * x)
  fit [0:10] f(x) $points using 1:2 via a, b, c
}
