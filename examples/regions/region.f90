! Regions of a program's code, counted by perch, in Fortran.
!
!     make -C examples regions
!     PERCH_REGION_REPORT=stderr target/examples/region-fortran
program region
  use perch
  implicit none
  integer, parameter :: n = 131072
  real(kind=8), allocatable :: values(:)
  real(kind=8) :: total
  integer :: round, i, status
  type(perch_values) :: done

  status = perch_init()
  if (status /= PERCH_OK) then
    print '(a)', perch_error()
    stop 1
  end if
  total = 0
  do round = 1, 8
    status = perch_start('fill')
    allocate (values(n))
    do i = 1, n
      values(i) = i + round
    end do
    status = perch_stop('fill')
    total = total + sum(values)
    deallocate (values)
  end do
  if (perch_get('fill', PERCH_PROCESS, done) == PERCH_OK) then
    print '(a,i0,a)', 'fill: ', done%calls, ' calls'
  end if
  print '(a,es12.5)', 'result ', total
end program region
