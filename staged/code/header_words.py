"""Names that headers take and whose shape does not tell. Written by `python -m tests.backends.host.header_names`.

Tested by `tests/backends/host/test_names.py`.
"""

WORDS = frozenset(
    """
EmulatedOperand EmulatedSame L_ctermid L_cuserid L_tmpnam M_1_PIf M_1_PIf128 M_1_PIf32 M_1_PIf32x M_1_PIf64 M_1_PIf64x
M_1_PIl M_2_PIf M_2_PIf128 M_2_PIf32 M_2_PIf32x M_2_PIf64 M_2_PIf64x M_2_PIl M_2_SQRTPIf M_2_SQRTPIf128 M_2_SQRTPIf32
M_2_SQRTPIf32x M_2_SQRTPIf64 M_2_SQRTPIf64x M_2_SQRTPIl M_Ef M_Ef128 M_Ef32 M_Ef32x M_Ef64 M_Ef64x M_El M_LN10f
M_LN10f128 M_LN10f32 M_LN10f32x M_LN10f64 M_LN10f64x M_LN10l M_LN2f M_LN2f128 M_LN2f32 M_LN2f32x M_LN2f64 M_LN2f64x
M_LN2l M_LOG10Ef M_LOG10Ef128 M_LOG10Ef32 M_LOG10Ef32x M_LOG10Ef64 M_LOG10Ef64x M_LOG10El M_LOG2Ef M_LOG2Ef128
M_LOG2Ef32 M_LOG2Ef32x M_LOG2Ef64 M_LOG2Ef64x M_LOG2El M_PI_2f M_PI_2f128 M_PI_2f32 M_PI_2f32x M_PI_2f64 M_PI_2f64x
M_PI_2l M_PI_4f M_PI_4f128 M_PI_4f32 M_PI_4f32x M_PI_4f64 M_PI_4f64x M_PI_4l M_PIf M_PIf128 M_PIf32 M_PIf32x M_PIf64
M_PIf64x M_PIl M_SQRT1_2f M_SQRT1_2f128 M_SQRT1_2f32 M_SQRT1_2f32x M_SQRT1_2f64 M_SQRT1_2f64x M_SQRT1_2l M_SQRT2f
M_SQRT2f128 M_SQRT2f32 M_SQRT2f32x M_SQRT2f64 M_SQRT2f64x M_SQRT2l P_tmpdir a64l abort abs access acct acos acosf
acosf128 acosf32 acosf32x acosf64 acosf64x acosh acoshf acoshf128 acoshf32 acoshf32x acoshf64 acoshf64x acoshl acosl
alarm alignas aligned_alloc alignof all alloca any arc4random arc4random_buf arc4random_uniform asctime asctime_r asin
asinf asinf128 asinf32 asinf32x asinf64 asinf64x asinh asinhf asinhf128 asinhf32 asinhf32x asinhf64 asinhf64x asinhl
asinl asm asprintf assert assert_perror at_quick_exit atan atan2 atan2f atan2f128 atan2f32 atan2f32x atan2f64 atan2f64x
atan2l atanf atanf128 atanf32 atanf32x atanf64 atanf64x atanh atanhf atanhf128 atanhf32 atanhf32x atanhf64 atanhf64x
atanhl atanl atexit atof atoi atol atoll atomicAdd atomicAdd_block atomicAdd_system atomicAnd atomicAnd_block
atomicAnd_system atomicCAS atomicCAS_block atomicCAS_system atomicDec atomicDec_block atomicDec_system atomicExch
atomicExch_block atomicExch_system atomicInc atomicInc_block atomicInc_system atomicMax atomicMax_block atomicMax_system
atomicMin atomicMin_block atomicMin_system atomicOr atomicOr_block atomicOr_system atomicSub atomicSub_block
atomicSub_system atomicXor atomicXor_block atomicXor_system auto ballot basename bcmp bcopy be16toh be32toh be64toh
blockDim blockIdx bool break brk bsearch bzero calloc canonicalize canonicalize_file_name canonicalizef canonicalizef128
canonicalizef32 canonicalizef32x canonicalizef64 canonicalizef64x canonicalizel case catch cbrt cbrtf cbrtf128 cbrtf32
cbrtf32x cbrtf64 cbrtf64x cbrtl ceil ceilf ceilf128 ceilf32 ceilf32x ceilf64 ceilf64x ceill char char1 char2 char3 char4
chdir chmod chown chroot class clearenv clearerr clearerr_unlocked clock clock64 clock_adjtime clock_getcpuclockid
clock_getres clock_gettime clock_nanosleep clock_settime clone close close_range closefrom confstr const constexpr
continue copy_file_range copysign copysignf copysignf128 copysignf32 copysignf32x copysignf64 copysignf64x copysignl cos
cosf cosf128 cosf32 cosf32x cosf64 cosf64x cosh coshf coshf128 coshf32 coshf32x coshf64 coshf64x coshl cosl cospi cospif
creat creat64 crypt ctermid ctime ctime_r cuserid cyl_bessel_i0 cyl_bessel_i0f cyl_bessel_i1 cyl_bessel_i1f dadd daddl
daemon daylight ddivl decltype declval default delete dfmal difftime dim3 div dmul dmull do double double1 double2
double2int double2ll double2uint double2ull double3 double4 double4_16a double4_32a dprintf drand48 drand48_r drem dremf
dreml dsqrtl dsub dsubl dup dup2 dup3 dysize eaccess ecvt ecvt_r else emulated_atomic emulated_bits emulated_shuffle
emulated_shuffle_down emulated_shuffle_up emulated_shuffle_xor emulated_thread emulated_value emulator_active_lanes
emulator_barrier emulator_configure emulator_counts emulator_dynamic_shared emulator_forget_kernel emulator_lane
emulator_last_violation emulator_live_objects emulator_read emulator_read_kind emulator_register_kernel emulator_trap
emulator_warp_exchange emulator_warp_vote endusershell enum environ erand48 erand48_r erf erfc erfcf erfcf128 erfcf32
erfcf32x erfcf64 erfcf64x erfcinv erfcinvf erfcl erfcx erfcxf erff erff128 erff32 erff32x erff64 erff64x erfinv erfinvf
erfl errno euidaccess execl execle execlp execv execve execveat execvp execvpe exit exp exp10 exp10f exp10f128 exp10f32
exp10f32x exp10f64 exp10f64x exp10l exp2 exp2f exp2f128 exp2f32 exp2f32x exp2f64 exp2f64x exp2l expf expf128 expf32
expf32x expf64 expf64x expl explicit explicit_bzero expm1 expm1f expm1f128 expm1f32 expm1f32x expm1f64 expm1f64x expm1l
extern f32addf128 f32addf32x f32addf64 f32addf64x f32divf128 f32divf32x f32divf64 f32divf64x f32fmaf128 f32fmaf32x
f32fmaf64 f32fmaf64x f32mulf128 f32mulf32x f32mulf64 f32mulf64x f32sqrtf128 f32sqrtf32x f32sqrtf64 f32sqrtf64x
f32subf128 f32subf32x f32subf64 f32subf64x f32xaddf128 f32xaddf64 f32xaddf64x f32xdivf128 f32xdivf64 f32xdivf64x
f32xfmaf128 f32xfmaf64 f32xfmaf64x f32xmulf128 f32xmulf64 f32xmulf64x f32xsqrtf128 f32xsqrtf64 f32xsqrtf64x f32xsubf128
f32xsubf64 f32xsubf64x f64addf128 f64addf64x f64divf128 f64divf64x f64fmaf128 f64fmaf64x f64mulf128 f64mulf64x
f64sqrtf128 f64sqrtf64x f64subf128 f64subf64x f64xaddf128 f64xdivf128 f64xfmaf128 f64xmulf128 f64xsqrtf128 f64xsubf128
fabs fabsf fabsf128 fabsf32 fabsf32x fabsf64 fabsf64x fabsl faccessat fadd faddl fallocate fallocate64 false fchdir
fchmod fchmodat fchown fchownat fclose fcloseall fcntl fcntl64 fcvt fcvt_r fd_mask fd_set fdatasync fdim fdimf fdimf128
fdimf32 fdimf32x fdimf64 fdimf64x fdiml fdiv fdivide fdividef fdivl fdopen feof feof_unlocked ferror ferror_unlocked
fexecve fflush fflush_unlocked ffma ffmal ffs ffsl ffsll fgetc fgetc_unlocked fgetpos fgetpos64 fgets fgets_unlocked
fileno fileno_unlocked finite finitef finitel float float1 float2 float2double float3 float4 flockfile floor floorf
floorf128 floorf32 floorf32x floorf64 floorf64x floorl fma fmaf fmaf128 fmaf32 fmaf32x fmaf64 fmaf64x fmal fmax fmaxf
fmaxf128 fmaxf32 fmaxf32x fmaxf64 fmaxf64x fmaximum fmaximum_mag fmaximum_mag_num fmaximum_mag_numf fmaximum_mag_numf128
fmaximum_mag_numf32 fmaximum_mag_numf32x fmaximum_mag_numf64 fmaximum_mag_numf64x fmaximum_mag_numl fmaximum_magf
fmaximum_magf128 fmaximum_magf32 fmaximum_magf32x fmaximum_magf64 fmaximum_magf64x fmaximum_magl fmaximum_num
fmaximum_numf fmaximum_numf128 fmaximum_numf32 fmaximum_numf32x fmaximum_numf64 fmaximum_numf64x fmaximum_numl fmaximumf
fmaximumf128 fmaximumf32 fmaximumf32x fmaximumf64 fmaximumf64x fmaximuml fmaxl fmaxmag fmaxmagf fmaxmagf128 fmaxmagf32
fmaxmagf32x fmaxmagf64 fmaxmagf64x fmaxmagl fmemopen fmin fminf fminf128 fminf32 fminf32x fminf64 fminf64x fminimum
fminimum_mag fminimum_mag_num fminimum_mag_numf fminimum_mag_numf128 fminimum_mag_numf32 fminimum_mag_numf32x
fminimum_mag_numf64 fminimum_mag_numf64x fminimum_mag_numl fminimum_magf fminimum_magf128 fminimum_magf32
fminimum_magf32x fminimum_magf64 fminimum_magf64x fminimum_magl fminimum_num fminimum_numf fminimum_numf128
fminimum_numf32 fminimum_numf32x fminimum_numf64 fminimum_numf64x fminimum_numl fminimumf fminimumf128 fminimumf32
fminimumf32x fminimumf64 fminimumf64x fminimuml fminl fminmag fminmagf fminmagf128 fminmagf32 fminmagf32x fminmagf64
fminmagf64x fminmagl fmod fmodf fmodf128 fmodf32 fmodf32x fmodf64 fmodf64x fmodl fmul fmull fopen fopen64 fopencookie
for fork fpathconf fpclassify fprintf fputc fputc_unlocked fputs fputs_unlocked fread fread_unlocked free freopen
freopen64 frexp frexpf frexpf128 frexpf32 frexpf32x frexpf64 frexpf64x frexpl friend fromfp fromfpf fromfpf128 fromfpf32
fromfpf32x fromfpf64 fromfpf64x fromfpl fromfpx fromfpxf fromfpxf128 fromfpxf32 fromfpxf32x fromfpxf64 fromfpxf64x
fromfpxl fscanf fseek fseeko fseeko64 fsetpos fsetpos64 fsqrt fsqrtl fstat fstat64 fstatat fstatat64 fsub fsubl fsync
ftell ftello ftello64 ftruncate ftruncate64 ftrylockfile funlockfile futimens fwrite fwrite_unlocked gamma gammaf gammal
gcvt get_current_dir_name getc getc_unlocked getchar getchar_unlocked getcpu getcwd getdate getdate_err getdate_r
getdelim getdomainname getdtablesize getegid getentropy getenv geteuid getgid getgroups gethostid gethostname getline
getloadavg getlogin getlogin_r getopt getpagesize getpass getpayload getpayloadf getpayloadf128 getpayloadf32
getpayloadf32x getpayloadf64 getpayloadf64x getpayloadl getpgid getpgrp getpid getppid getpt getresgid getresuid getsid
getsubopt gettid getuid getumask getusershell getw getwd gmtime gmtime_r grantpt gridDim group_member gsignal htobe16
htobe32 htobe64 htole16 htole32 htole64 hypot hypotf hypotf128 hypotf32 hypotf32x hypotf64 hypotf64x hypotl if ilogb
ilogbf ilogbf128 ilogbf32 ilogbf32x ilogbf64 ilogbf64x ilogbl index initstate initstate_r inline int int1 int2
int2double int3 int4 isalnum isalnum_l isalpha isalpha_l isascii isascii_l isatty isblank isblank_l iscanonical iscntrl
iscntrl_l isctype isdigit isdigit_l iseqsig isfinite isgraph isgraph_l isgreater isgreaterequal isinf isinff isinfl
isless islessequal islessgreater islower islower_l isnan isnanf isnanl isnormal isprint isprint_l ispunct ispunct_l
issignaling isspace isspace_l issubnormal isunordered isupper isupper_l isxdigit isxdigit_l iszero j0 j0f j0f128 j0f32
j0f32x j0f64 j0f64x j0l j1 j1f j1f128 j1f32 j1f32x j1f64 j1f64x j1l jn jnf jnf128 jnf32 jnf32x jnf64 jnf64x jnl jrand48
jrand48_r kill kill_dependency killpg l64a labs lchmod lchown lcong48 lcong48_r ldexp ldexpf ldexpf128 ldexpf32
ldexpf32x ldexpf64 ldexpf64x ldexpl ldiv le16toh le32toh le64toh lgamma lgamma_r lgammaf lgammaf128 lgammaf128_r
lgammaf32 lgammaf32_r lgammaf32x lgammaf32x_r lgammaf64 lgammaf64_r lgammaf64x lgammaf64x_r lgammaf_r lgammal lgammal_r
libraryPropertyType link linkat linux ll2double llabs lldiv llmax llmin llogb llogbf llogbf128 llogbf32 llogbf32x
llogbf64 llogbf64x llogbl llrint llrintf llrintf128 llrintf32 llrintf32x llrintf64 llrintf64x llrintl llround llroundf
llroundf128 llroundf32 llroundf32x llroundf64 llroundf64x llroundl localtime localtime_r lockf lockf64 log log10 log10f
log10f128 log10f32 log10f32x log10f64 log10f64x log10l log1p log1pf log1pf128 log1pf32 log1pf32x log1pf64 log1pf64x
log1pl log2 log2f log2f128 log2f32 log2f32x log2f64 log2f64x log2l logb logbf logbf128 logbf32 logbf32x logbf64 logbf64x
logbl logf logf128 logf32 logf32x logf64 logf64x logl long long1 long2 long3 long4 long4_16a long4_32a longlong1
longlong2 longlong3 longlong4 longlong4_16a longlong4_32a lrand48 lrand48_r lrint lrintf lrintf128 lrintf32 lrintf32x
lrintf64 lrintf64x lrintl lround lroundf lroundf128 lroundf32 lroundf32x lroundf64 lroundf64x lroundl lseek lseek64
lstat lstat64 madvise make_char1 make_char2 make_char3 make_char4 make_cudaExtent make_cudaPitchedPtr make_cudaPos
make_double1 make_double2 make_double3 make_double4 make_double4_16a make_double4_32a make_float1 make_float2
make_float3 make_float4 make_int1 make_int2 make_int3 make_int4 make_long1 make_long2 make_long3 make_long4
make_long4_16a make_long4_32a make_longlong1 make_longlong2 make_longlong3 make_longlong4 make_longlong4_16a
make_longlong4_32a make_short1 make_short2 make_short3 make_short4 make_uchar1 make_uchar2 make_uchar3 make_uchar4
make_uint1 make_uint2 make_uint3 make_uint4 make_ulong1 make_ulong2 make_ulong3 make_ulong4 make_ulong4_16a
make_ulong4_32a make_ulonglong1 make_ulonglong2 make_ulonglong3 make_ulonglong4 make_ulonglong4_16a make_ulonglong4_32a
make_ushort1 make_ushort2 make_ushort3 make_ushort4 malloc math_errhandling max mblen mbstowcs mbtowc memccpy memchr
memcmp memcpy memfd_create memfrob memmem memmove memory_order memory_order_acq_rel memory_order_acquire
memory_order_consume memory_order_relaxed memory_order_release memory_order_seq_cst mempcpy memrchr memset min mincore
mkdir mkdirat mkdtemp mkfifo mkfifoat mknod mknodat mkostemp mkostemp64 mkostemps mkostemps64 mkstemp mkstemp64 mkstemps
mkstemps64 mktemp mktime mlock mlock2 mlockall mmap mmap64 modf modff modff128 modff32 modff32x modff64 modff64x modfl
mprotect mrand48 mrand48_r mremap msync munlock munlockall munmap name_to_handle_at namespace nan nanf nanf128 nanf32
nanf32x nanf64 nanf64x nanl nanosleep nearbyint nearbyintf nearbyintf128 nearbyintf32 nearbyintf32x nearbyintf64
nearbyintf64x nearbyintl new nextafter nextafterf nextafterf128 nextafterf32 nextafterf32x nextafterf64 nextafterf64x
nextafterl nextdown nextdownf nextdownf128 nextdownf32 nextdownf32x nextdownf64 nextdownf64x nextdownl nexttoward
nexttowardf nexttowardl nextup nextupf nextupf128 nextupf32 nextupf32x nextupf64 nextupf64x nextupl nice noexcept norm
norm3d norm3df norm4d norm4df normcdf normcdff normcdfinv normcdfinvf normf nrand48 nrand48_r nullptr obstack_printf
obstack_vprintf offsetof on_exit open open64 open_by_handle_at open_memstream openat openat64 operator optarg opterr
optind optopt pathconf pause pclose perror pipe pipe2 pkey_alloc pkey_free pkey_get pkey_mprotect pkey_set popen pow
powf powf128 powf32 powf32x powf64 powf64x powl pread pread64 printf private process_madvise process_mrelease profil
program_invocation_name program_invocation_short_name protected pselect psiginfo psignal ptsname ptsname_r public putc
putc_unlocked putchar putchar_unlocked putenv puts putw pwrite pwrite64 qecvt qecvt_r qfcvt qfcvt_r qgcvt qsort qsort_r
quick_exit raise rand rand_r random random_r rawmemchr rcbrt rcbrtf read readahead readlink readlinkat realloc
reallocarray realpath reinterpret_cast remainder remainderf remainderf128 remainderf32 remainderf32x remainderf64
remainderf64x remainderl remap_file_pages remove remquo remquof remquof128 remquof32 remquof32x remquof64 remquof64x
remquol rename renameat renameat2 return revoke rewind rhypot rhypotf rindex rint rintf rintf128 rintf32 rintf32x
rintf64 rintf64x rintl rmdir rnorm rnorm3d rnorm3df rnorm4d rnorm4df rnormf round roundeven roundevenf roundevenf128
roundevenf32 roundevenf32x roundevenf64 roundevenf64x roundevenl roundf roundf128 roundf32 roundf32x roundf64 roundf64x
roundl rpmatch rsqrt rsqrtf sa_handler sa_sigaction sbrk scalb scalbf scalbl scalbln scalblnf scalblnf128 scalblnf32
scalblnf32x scalblnf64 scalblnf64x scalblnl scalbn scalbnf scalbnf128 scalbnf32 scalbnf32x scalbnf64 scalbnf64x scalbnl
scanf secure_getenv seed48 seed48_r select setbuf setbuffer setdomainname setegid setenv seteuid setgid sethostid
sethostname setlinebuf setlogin setns setpayload setpayloadf setpayloadf128 setpayloadf32 setpayloadf32x setpayloadf64
setpayloadf64x setpayloadl setpayloadsig setpayloadsigf setpayloadsigf128 setpayloadsigf32 setpayloadsigf32x
setpayloadsigf64 setpayloadsigf64x setpayloadsigl setpgid setpgrp setregid setresgid setresuid setreuid setsid setstate
setstate_r setuid setusershell setvbuf shm_open shm_unlink short short1 short2 short3 short4 si_addr si_addr_lsb si_arch
si_band si_call_addr si_fd si_int si_lower si_overrun si_pid si_pkey si_ptr si_status si_stime si_syscall si_timerid
si_uid si_upper si_utime si_value sigabbrev_np sigaction sigaddset sigaltstack sigandset sigblock sigdelset sigdescr_np
sigemptyset sigfillset siggetmask sighold sigignore siginterrupt sigisemptyset sigismember sigmask signal signbit signed
signgam significand significandf significandl sigorset sigpause sigpending sigprocmask sigqueue sigrelse sigreturn
sigset sigsetmask sigstack sigsuspend sigtimedwait sigwait sigwaitinfo sin sincos sincosf sincosf128 sincosf32
sincosf32x sincosf64 sincosf64x sincosl sincospi sincospif sinf sinf128 sinf32 sinf32x sinf64 sinf64x sinh sinhf
sinhf128 sinhf32 sinhf32x sinhf64 sinhf64x sinhl sinl sinpi sinpif sizeof sleep snprintf splice sprintf sqrt sqrtf
sqrtf128 sqrtf32 sqrtf32x sqrtf64 sqrtf64x sqrtl srand srand48 srand48_r srandom srandom_r sscanf ssignal st_atime
st_ctime st_mtime stat stat64 static static_assert static_cast statx std stderr stdin stdout stpcpy stpncpy strcasecmp
strcasecmp_l strcasestr strcat strchr strchrnul strcmp strcoll strcoll_l strcpy strcspn strdup strdupa strerror
strerror_l strerror_r strerrordesc_np strerrorname_np strfromd strfromf strfromf128 strfromf32 strfromf32x strfromf64
strfromf64x strfroml strfry strftime strftime_l strlen strncasecmp strncasecmp_l strncat strncmp strncpy strndup
strndupa strnlen strpbrk strptime strptime_l strrchr strsep strsignal strspn strstr strtod strtod_l strtof strtof128
strtof128_l strtof32 strtof32_l strtof32x strtof32x_l strtof64 strtof64_l strtof64x strtof64x_l strtof_l strtok strtok_r
strtol strtol_l strtold strtold_l strtoll strtoll_l strtoq strtoul strtoul_l strtoull strtoull_l strtouq struct
strverscmp strxfrm strxfrm_l surf1DLayeredread surf1DLayeredwrite surf1Dread surf1Dwrite surf2DLayeredread
surf2DLayeredwrite surf2Dread surf2Dwrite surf3Dread surf3Dwrite surfCubemapLayeredread surfCubemapLayeredwrite
surfCubemapread surfCubemapwrite swab switch symlink symlinkat sync sync_file_range syncfs syncthreads_and
syncthreads_count syncthreads_or syscall sysconf system sysv_signal tan tanf tanf128 tanf32 tanf32x tanf64 tanf64x tanh
tanhf tanhf128 tanhf32 tanhf32x tanhf64 tanhf64x tanhl tanl tcgetpgrp tcsetpgrp tee template tempnam tex1D tex1DGrad
tex1DLayered tex1DLayeredGrad tex1DLayeredLod tex1DLod tex1Dfetch tex2D tex2DGrad tex2DLayered tex2DLayeredGrad
tex2DLayeredLod tex2DLod tex2Dgather tex3D tex3DGrad tex3DLod texCubemap texCubemapGrad texCubemapLayered
texCubemapLayeredGrad texCubemapLayeredLod texCubemapLod tgamma tgammaf tgammaf128 tgammaf32 tgammaf32x tgammaf64
tgammaf64x tgammal tgkill this threadIdx throw time timegm timelocal timer_create timer_delete timer_getoverrun
timer_gettime timer_settime timespec_get timespec_getres timezone tmpfile tmpfile64 tmpnam tmpnam_r toascii toascii_l
tolower tolower_l totalorder totalorderf totalorderf128 totalorderf32 totalorderf32x totalorderf64 totalorderf64x
totalorderl totalordermag totalordermagf totalordermagf128 totalordermagf32 totalordermagf32x totalordermagf64
totalordermagf64x totalordermagl toupper toupper_l true trunc truncate truncate64 truncf truncf128 truncf32 truncf32x
truncf64 truncf64x truncl try ttyname ttyname_r ttyslot typedef typename tzname tzset u_char u_int u_long u_short ualarm
uchar1 uchar2 uchar3 uchar4 ufromfp ufromfpf ufromfpf128 ufromfpf32 ufromfpf32x ufromfpf64 ufromfpf64x ufromfpl ufromfpx
ufromfpxf ufromfpxf128 ufromfpxf32 ufromfpxf32x ufromfpxf64 ufromfpxf64x ufromfpxl uint uint1 uint2 uint2double uint3
uint4 ull2double ullmax ullmin ulong ulong1 ulong2 ulong3 ulong4 ulong4_16a ulong4_32a ulonglong1 ulonglong2 ulonglong3
ulonglong4 ulonglong4_16a ulonglong4_32a umask umax umin ungetc union unix unlink unlinkat unlockpt unsetenv unshare
unsigned ushort ushort1 ushort2 ushort3 ushort4 using usleep utimensat va_arg va_copy va_end va_list va_start valloc
vasprintf vdprintf vfork vfprintf vfscanf vhangup virtual vmsplice void volatile vprintf vscanf vsnprintf vsprintf
vsscanf warpSize wcstombs wctomb while write y0 y0f y0f128 y0f32 y0f32x y0f64 y0f64x y0l y1 y1f y1f128 y1f32 y1f32x
y1f64 y1f64x y1l yn ynf ynf128 ynf32 ynf32x ynf64 ynf64x ynl
""".split()
)
