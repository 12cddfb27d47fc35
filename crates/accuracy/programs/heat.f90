! Heat spreading over a plate, until it is stopped.
program heat
  implicit none
  integer, parameter :: n = 256
  real(8) :: now(n, n), next(n, n), most
  integer :: i, j
  now = 0
  now(1, :) = 100
  next = now
  do
    most = 0
    do j = 2, n - 1
      do i = 2, n - 1
        next(i, j) = 0.25d0 * (now(i - 1, j) + now(i + 1, j) + now(i, j - 1) + now(i, j + 1))
        most = max(most, abs(next(i, j) - now(i, j)))
      end do
    end do
    now = next
    if (most < 0) exit
  end do
  print *, most
end program heat
