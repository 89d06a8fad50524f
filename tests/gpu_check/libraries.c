// Ask cuDNN for its description of this machine's device, and cublasLt for the algorithms of products.
//
//     asker device              one line: the description, as cuDNN reads it again
//     asker products < LINES    a line of JSON for each line "n m k TRANSA TRANSB TYPE COMPUTE EPILOGUE"
//
// A call that fails is a line with the function and its status, and the exit status 4.
#include <cublasLt.h>
#include <cudnn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CANDIDATES = 8, FAILED = 4 };
static const uint64_t WORKSPACE = (uint64_t)32 << 20;

static int failed(const char *function, const char *status) {
    printf("{\"function\": \"%s\", \"status\": \"%s\"}\n", function, status);
    return FAILED;
}

#define CUDNN_TRY(call) \
    do { \
        const cudnnStatus_t status = (call); \
        if (status != CUDNN_STATUS_SUCCESS) { \
            return failed(#call, cudnnGetErrorString(status)); \
        } \
    } while (0)

#define LT_TRY(call) \
    do { \
        const cublasStatus_t status = (call); \
        if (status != CUBLAS_STATUS_SUCCESS) { \
            return failed(#call, cublasLtGetStatusName(status)); \
        } \
    } while (0)

static int describe(void) {
    static char text[1 << 14];
    cudnnHandle_t handle = NULL;
    cudnnBackendDescriptor_t device = NULL;
    int64_t length = 0;
    CUDNN_TRY(cudnnCreate(&handle));
    CUDNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device));
    CUDNN_TRY(cudnnBackendSetAttribute(device, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&handle));
    CUDNN_TRY(cudnnBackendFinalize(device));
    CUDNN_TRY(cudnnBackendGetAttribute(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof text - 1, &length,
                                       text));
    printf("%s\n", text);
    return 0;
}

static const struct {
    const char *name;
    cublasLtEpilogue_t epilogue;
} EPILOGUES[] = {
    {"NONE", CUBLASLT_EPILOGUE_DEFAULT},        {"BIAS", CUBLASLT_EPILOGUE_BIAS},
    {"RELU", CUBLASLT_EPILOGUE_RELU},           {"RELU_BIAS", CUBLASLT_EPILOGUE_RELU_BIAS},
    {"GELU", CUBLASLT_EPILOGUE_GELU},           {"GELU_BIAS", CUBLASLT_EPILOGUE_GELU_BIAS},
    {"BGRADA", CUBLASLT_EPILOGUE_BGRADA},       {"BGRADB", CUBLASLT_EPILOGUE_BGRADB},
};

// The fields of an algorithm that have names.
static void print_algorithm(const cublasLtMatmulAlgo_t *algorithm) {
    static const struct {
        const char *name;
        cublasLtMatmulAlgoConfigAttributes_t attribute;
        size_t size;
    } FIELDS[] = {
        {"algorithm", CUBLASLT_ALGO_CONFIG_ID, 4},         {"tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
        {"split_k", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},   {"reduction", CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
        {"swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4}, {"stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    };
    for (size_t number = 0; number < sizeof FIELDS / sizeof *FIELDS; ++number) {
        uint32_t value = 0;
        size_t written = 0;
        if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, FIELDS[number].attribute, &value, FIELDS[number].size, &written) ==
            CUBLAS_STATUS_SUCCESS) {
            printf("\"%s\": %" PRIu32 ", ", FIELDS[number].name, value);
        }
    }
}

static int ask_product(cublasLtHandle_t handle, cublasLtMatmulPreference_t preference, const char *line) {
    uint64_t n = 0;
    uint64_t m = 0;
    uint64_t k = 0;
    char left = 0;
    char right = 0;
    char type[8] = "";
    char compute[8] = "";
    char epilogue[16] = "";
    if (sscanf(line, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %c %c %7s %7s %15s", &n, &m, &k, &left, &right, type, compute,
               epilogue) != 8) {
        return failed("sscanf", line);
    }
    const cudaDataType_t scalars = strcmp(type, "bf16") == 0 ? CUDA_R_16BF : CUDA_R_32F;
    const cublasComputeType_t sums = strcmp(compute, "tf32") == 0 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t operations[2] = {left == 'T' ? CUBLAS_OP_T : CUBLAS_OP_N, right == 'T' ? CUBLAS_OP_T : CUBLAS_OP_N};
    cublasLtMatmulDesc_t product = NULL;
    cublasLtMatrixLayout_t a = NULL;
    cublasLtMatrixLayout_t b = NULL;
    cublasLtMatrixLayout_t c = NULL;
    LT_TRY(cublasLtMatmulDescCreate(&product, sums, CUDA_R_32F));
    LT_TRY(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &operations[0], sizeof operations[0]));
    LT_TRY(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &operations[1], sizeof operations[1]));
    int known = 0;
    for (size_t number = 0; number < sizeof EPILOGUES / sizeof *EPILOGUES; ++number) {
        if (strcmp(EPILOGUES[number].name, epilogue) == 0) {
            LT_TRY(cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &EPILOGUES[number].epilogue,
                                                  sizeof EPILOGUES[number].epilogue));
            known = 1;
        }
    }
    if (!known) {
        return failed("epilogue", epilogue);
    }
    LT_TRY(left == 'T' ? cublasLtMatrixLayoutCreate(&a, scalars, k, n, (int64_t)k)
                       : cublasLtMatrixLayoutCreate(&a, scalars, n, k, (int64_t)n));
    LT_TRY(right == 'T' ? cublasLtMatrixLayoutCreate(&b, scalars, m, k, (int64_t)m)
                        : cublasLtMatrixLayoutCreate(&b, scalars, k, m, (int64_t)k));
    LT_TRY(cublasLtMatrixLayoutCreate(&c, scalars, n, m, (int64_t)n));
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, product, a, b, c, c, preference, CANDIDATES, found, &count);
    printf("{\"n\": %" PRIu64 ", \"m\": %" PRIu64 ", \"k\": %" PRIu64 ", \"operations\": \"%c%c\", \"type\": \"%s\", "
           "\"compute\": \"%s\", \"epilogue\": \"%s\", \"status\": \"%s\", \"candidates\": [",
           n, m, k, left, right, type, compute, epilogue, cublasLtGetStatusName(status));
    for (int number = 0; number < count && status == CUBLAS_STATUS_SUCCESS; ++number) {
        printf("%s{", number == 0 ? "" : ", ");
        print_algorithm(&found[number].algo);
        printf("\"waves\": %.4f, \"workspace\": %zu, \"state\": \"%s\"}", (double)found[number].wavesCount,
               found[number].workspaceSize, cublasLtGetStatusName(found[number].state));
    }
    printf("]}\n");
    (void)cublasLtMatrixLayoutDestroy(a);
    (void)cublasLtMatrixLayoutDestroy(b);
    (void)cublasLtMatrixLayoutDestroy(c);
    (void)cublasLtMatmulDescDestroy(product);
    return 0;
}

static int ask_products(void) {
    char line[256];
    int worst = 0;
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    LT_TRY(cublasLtMatmulPreferenceCreate(&preference));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE, sizeof WORKSPACE));
    LT_TRY(cublasLtCreate(&handle));
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        const int status = ask_product(handle, preference, line);
        worst = status != 0 ? status : worst;
    }
    return worst;
}

int main(int count, char **words) {
    if (count == 2 && strcmp(words[1], "device") == 0) {
        return describe();
    }
    if (count == 2 && strcmp(words[1], "products") == 0) {
        return ask_products();
    }
    fprintf(stderr, "usage: %s device | products\n", words[0]);
    return 2;
}
