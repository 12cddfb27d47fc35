# The Mandelbrot set, line by line, until it is stopped.
loop do
  200.times do |row|
    200.times do |column|
      cr, ci = column * 0.015 - 2.0, row * 0.015 - 1.5
      zr = zi = 0.0
      n = 0
      while n < 50 && zr * zr + zi * zi < 4.0
        zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
        n += 1
      end
    end
  end
end
