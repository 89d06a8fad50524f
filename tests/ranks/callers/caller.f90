! A Fortran program that runs `heat` on each half of its ranks.
program caller
  use, intrinsic :: iso_c_binding
  implicit none

  integer, parameter :: cells = 24

  type, bind(C) :: heat_args
    type(c_ptr) :: u0, target0
    real(c_double) :: k
    integer(c_int64_t) :: steps
    type(c_ptr) :: misfit, u, d_u, d_k
  end type

  interface
    subroutine set_communicator(comm) bind(C, name="heat_set_communicator_f")
      import :: c_int
      integer(c_int), value :: comm
    end subroutine
    function heat(args, arena, host) result(status) bind(C)
      import :: heat_args, c_ptr, c_int
      type(heat_args), intent(in) :: args
      type(c_ptr), value :: arena, host
      integer(c_int) :: status
    end function
    function heat_arena_create() result(arena) bind(C)
      import :: c_ptr
      type(c_ptr) :: arena
    end function
    subroutine heat_arena_free(arena) bind(C)
      import :: c_ptr
      type(c_ptr), value :: arena
    end subroutine
    function heat_host_bytes() result(bytes) bind(C)
      import :: c_size_t
      integer(c_size_t) :: bytes
    end function
    function halves_begin(rank, ranks) result(comm) bind(C)
      import :: c_int
      integer(c_int), intent(out) :: rank, ranks
      integer(c_int) :: comm
    end function
    function halves_null() result(comm) bind(C)
      import :: c_int
      integer(c_int) :: comm
    end function
    subroutine halves_end(comm) bind(C)
      import :: c_int
      integer(c_int), value :: comm
    end subroutine
  end interface

  real(c_double), target :: u0(cells), target0(cells), u(cells), d_u(cells), misfit, d_k
  integer(c_int8_t), allocatable, target :: host(:)
  type(heat_args) :: args
  type(c_ptr) :: arena
  integer(c_int) :: rank, ranks, comm, half
  integer :: i

  comm = halves_begin(rank, ranks)
  half = merge(1, 0, rank >= ranks / 2)
  u0 = [(cos(0.5d0 * i) * (half + 1), i = 0, cells - 1)]
  target0 = [(sin(0.25d0 * i), i = 0, cells - 1)]
  args = heat_args(c_loc(u0), c_loc(target0), 0.2d0, 50, c_loc(misfit), c_loc(u), c_loc(d_u), c_loc(d_k))
  allocate(host(heat_host_bytes()))
  host = 0
  arena = heat_arena_create()

  call set_communicator(comm)
  if (heat(args, arena, c_loc(host)) /= 0) error stop "heat has failed"
  call set_communicator(halves_null())

  if (mod(rank, ranks / 2) == 0) print '(a, i2, 2es25.17)', "half", half, misfit, d_k
  call heat_arena_free(arena)
  call halves_end(comm)
end program
