/* The checks that c_api_test.c makes in C. Each returns null, or what failed.
 */
#ifndef FUSEDNORM_TESTS_C_API_TEST_H_
#define FUSEDNORM_TESTS_C_API_TEST_H_

#ifdef __cplusplus
extern "C" {
#endif

const char* CheckLayout(void);
const char* CheckOptionsInit(void);
const char* CheckValues(void);
const char* CheckRmsNorm(void);
const char* CheckAddRmsNorm(void);
const char* CheckRefusals(void);
const char* CheckLastError(void);
const char* CheckVersion(void);
const char* CheckTargets(void);

#ifdef __cplusplus
}
#endif
#endif /* FUSEDNORM_TESTS_C_API_TEST_H_ */
