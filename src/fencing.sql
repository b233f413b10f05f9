UPDATE accounts SET balance = :balance, fence = :fence
 WHERE id = :id AND fence <= :fence
