# Straight lines and smooth curves through noise, until it is stopped.
set.seed(1)
x <- matrix(rnorm(400000), ncol = 40)
repeat {
  y <- rnorm(10000)
  f <- lm.fit(x, y)
  s <- smooth.spline(x[, 1], y)
}
