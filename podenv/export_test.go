package podenv

// LookUp finds a key in an env file.
func LookUp(file, key string) (string, error) { return newEnvFile(file).lookUp(key) }
