// Arrays on OpenCL's device, for the `main` of an exported program, which has `give_up`.

typedef struct st_ocl st_ocl;
extern st_ocl *st_ocl_open(int number);
extern void *st_ocl_allocate(st_ocl *gpu, size_t bytes);
extern void st_ocl_free(st_ocl *gpu, void *memory);
extern int st_ocl_copy(st_ocl *gpu, void *to, const void *from, size_t bytes);
extern const char *st_ocl_words(void);

static st_ocl *opened = NULL;

// An array's place on the device, with its elements.
__attribute__((unused)) static void *to_device(int device, void *array, size_t bytes) {
    opened = st_ocl_open(device);
    void *const place = opened != NULL ? st_ocl_allocate(opened, bytes) : NULL;
    if (place == NULL || st_ocl_copy(opened, place, array, bytes) != 0) {
        give_up(1, "%s", st_ocl_words());
    }
    return place;
}

// The elements of an array on the device; the caller frees them.
__attribute__((unused)) static void *from_device(int device, const void *place, size_t bytes) {
    (void)device;
    void *array = malloc(bytes + 1);
    if (array == NULL) {
        give_up(1, "a result does not fit into memory");
    }
    if (st_ocl_copy(opened, array, place, bytes) != 0) {
        give_up(1, "%s", st_ocl_words());
    }
    return array;
}

static void free_on_device(void *place) {
    st_ocl_free(opened, place);
}
