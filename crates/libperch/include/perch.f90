! perch.f90: regions of a program's own code for Fortran 2003 and later; perch.h describes each function.
!
! Compile it with your program, as modules differ between compilers:
!
!     gfortran $(pkg-config --variable=fortran perch) app.f90 $(pkg-config --libs perch)
!
!     use perch
!     status = perch_init()
!     status = perch_start('solve')
!     ...
!     status = perch_stop('solve')
module perch
  use, intrinsic :: iso_c_binding
  implicit none
  private

  integer, parameter, public :: PERCH_OK = 0, PERCH_OFF = -1, PERCH_ON = -2, PERCH_NOT_STARTED = -3, &
                                PERCH_NO_SUCH_REGION = -4, PERCH_NO_SUCH_COUNT = -5, PERCH_TOO_MANY = -6, &
                                PERCH_BUSY = -7, PERCH_SETTING = -8
  integer, parameter, public :: PERCH_THREAD = 0, PERCH_PROCESS = 1
  integer, parameter, public :: PERCH_EXACT = 0, PERCH_SCALED = 1, PERCH_DOUBTFUL = 2, PERCH_MISSING = 3

  type, bind(c), public :: perch_values
    integer(c_int64_t) :: calls
    integer(c_int32_t) :: threads
    integer(c_int32_t) :: open
    real(c_double) :: wall_s
    real(c_double) :: cpu_s
    real(c_double) :: counted_s
  end type perch_values

  type, bind(c), public :: perch_count
    real(c_double) :: value
    real(c_double) :: counted
    real(c_double) :: share
    integer(c_int) :: quality
  end type perch_count

  public :: perch_init, perch_init_if_asked, perch_is_on, perch_start, perch_stop, perch_read, perch_next_set, &
            perch_reset, perch_get, perch_get_count, perch_get_metric, perch_report, perch_finish, perch_error

  interface
    function c_init(options) bind(c, name='perch_init') result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: options
      integer(c_int) :: status
    end function c_init
    function c_init_if_asked(options) bind(c, name='perch_init_if_asked') result(status)
      import :: c_int, c_ptr
      type(c_ptr), value :: options
      integer(c_int) :: status
    end function c_init_if_asked
    function perch_is_on() bind(c, name='perch_is_on') result(on)
      import :: c_int
      integer(c_int) :: on
    end function perch_is_on
    function c_start(region) bind(c, name='perch_start') result(status)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: region(*)
      integer(c_int) :: status
    end function c_start
    function c_stop(region) bind(c, name='perch_stop') result(status)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: region(*)
      integer(c_int) :: status
    end function c_stop
    function c_read(region) bind(c, name='perch_read') result(status)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: region(*)
      integer(c_int) :: status
    end function c_read
    function c_reset(region) bind(c, name='perch_reset') result(status)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: region(*)
      integer(c_int) :: status
    end function c_reset
    function c_report(destination) bind(c, name='perch_report') result(status)
      import :: c_int, c_char
      character(kind=c_char), intent(in) :: destination(*)
      integer(c_int) :: status
    end function c_report
    function perch_next_set() bind(c, name='perch_next_set') result(status)
      import :: c_int
      integer(c_int) :: status
    end function perch_next_set
    function perch_finish() bind(c, name='perch_finish') result(status)
      import :: c_int
      integer(c_int) :: status
    end function perch_finish
    function c_get(region, scope, values) bind(c, name='perch_get') result(status)
      import :: c_int, c_char, perch_values
      character(kind=c_char), intent(in) :: region(*)
      integer(c_int), value :: scope
      type(perch_values), intent(out) :: values
      integer(c_int) :: status
    end function c_get
    function c_get_count(region, scope, event, count) bind(c, name='perch_get_count') result(status)
      import :: c_int, c_char, perch_count
      character(kind=c_char), intent(in) :: region(*), event(*)
      integer(c_int), value :: scope
      type(perch_count), intent(out) :: count
      integer(c_int) :: status
    end function c_get_count
    function c_get_metric(region, scope, metric, value) bind(c, name='perch_get_metric') result(status)
      import :: c_int, c_char, c_double
      character(kind=c_char), intent(in) :: region(*), metric(*)
      integer(c_int), value :: scope
      real(c_double), intent(out) :: value
      integer(c_int) :: status
    end function c_get_metric
    function c_error() bind(c, name='perch_error') result(words)
      import :: c_ptr
      type(c_ptr) :: words
    end function c_error
    function c_strlen(words) bind(c, name='strlen') result(length)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: words
      integer(c_size_t) :: length
    end function c_strlen
  end interface

contains

  ! Counts from now on: the environment decides what, else the standard events are counted.
  function perch_init() result(status)
    integer :: status
    status = c_init(c_null_ptr)
  end function perch_init

  function perch_init_if_asked() result(status)
    integer :: status
    status = c_init_if_asked(c_null_ptr)
  end function perch_init_if_asked

  function perch_start(region) result(status)
    character(*), intent(in) :: region
    integer :: status
    status = c_start(trim(region)//c_null_char)
  end function perch_start

  function perch_stop(region) result(status)
    character(*), intent(in) :: region
    integer :: status
    status = c_stop(trim(region)//c_null_char)
  end function perch_stop

  function perch_read(region) result(status)
    character(*), intent(in) :: region
    integer :: status
    status = c_read(trim(region)//c_null_char)
  end function perch_read

  function perch_reset(region) result(status)
    character(*), intent(in) :: region
    integer :: status
    status = c_reset(trim(region)//c_null_char)
  end function perch_reset

  function perch_report(destination) result(status)
    character(*), intent(in) :: destination
    integer :: status
    status = c_report(trim(destination)//c_null_char)
  end function perch_report

  function perch_get(region, scope, values) result(status)
    character(*), intent(in) :: region
    integer, intent(in) :: scope
    type(perch_values), intent(out) :: values
    integer :: status
    status = c_get(trim(region)//c_null_char, int(scope, c_int), values)
  end function perch_get

  function perch_get_count(region, scope, event, count) result(status)
    character(*), intent(in) :: region, event
    integer, intent(in) :: scope
    type(perch_count), intent(out) :: count
    integer :: status
    status = c_get_count(trim(region)//c_null_char, int(scope, c_int), trim(event)//c_null_char, count)
  end function perch_get_count

  function perch_get_metric(region, scope, metric, value) result(status)
    character(*), intent(in) :: region, metric
    integer, intent(in) :: scope
    real(c_double), intent(out) :: value
    integer :: status
    status = c_get_metric(trim(region)//c_null_char, int(scope, c_int), trim(metric)//c_null_char, value)
  end function perch_get_metric

  function perch_error() result(words)
    character(:), allocatable :: words
    type(c_ptr) :: from
    character(kind=c_char), pointer :: letters(:)
    integer :: i
    from = c_error()
    call c_f_pointer(from, letters, [c_strlen(from)])
    allocate (character(size(letters)) :: words)
    do i = 1, size(letters)
      words(i:i) = letters(i)
    end do
  end function perch_error

end module perch
