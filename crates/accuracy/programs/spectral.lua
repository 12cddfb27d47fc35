-- The spectral norm of the matrix 1 / ((i + j)(i + j + 1) / 2 + i + 1), again and again.
local function A(i, j)
  local ij = i + j
  return 1.0 / (ij * (ij + 1) * 0.5 + i + 1)
end
local function times(x, y, n, turned)
  for i = 0, n - 1 do
    local sum = 0
    for j = 0, n - 1 do
      sum = sum + (turned and A(j, i) or A(i, j)) * x[j]
    end
    y[i] = sum
  end
end
while true do
  local n = 200
  local u, v, t = {}, {}, {}
  for i = 0, n - 1 do u[i] = 1 end
  for _ = 1, 10 do
    times(u, t, n, false); times(t, v, n, true)
    times(v, t, n, false); times(t, u, n, true)
  end
end
