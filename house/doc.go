// Package house checks that the module keeps its shape.
//
//   - In: the source files of the module, and what go list says they drag in.
//   - Out: test failures that name the file, the rule and the way out.
//   - Owns: nothing. All of it is tests, and the plan they hold the code to.
//   - Rooms: all of them; plan_test.go has the floors and the budgets.
//
// To record new dependencies after having looked at them:
//
//	go generate ./house
package house

//go:generate go test . -run TestDeps -update
